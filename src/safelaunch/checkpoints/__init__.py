"""Which checkpoint a run can resume from: judged by structure alone, without loading or executing anything."""
