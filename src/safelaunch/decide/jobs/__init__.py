"""The run's next job, its standby, and the links of a script that submits itself."""
