"""The ground floor: texts, numbers, records of the run, times, secrets. Values in, values out."""
