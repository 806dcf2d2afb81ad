"""All that chooses about a run, as pure functions: facts in, one named answer out. Who calls them gathers the facts and
carries out the answer.
"""
