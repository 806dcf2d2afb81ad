"""Pure decisions: values in, values out; no clock, file, process or random."""
