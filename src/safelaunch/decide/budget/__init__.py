"""Whether another attempt is worth it: who is to blame, how often, and when to give up."""
