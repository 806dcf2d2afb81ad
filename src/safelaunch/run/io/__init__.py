"""The run folder and what stands beside it: journal, outbox, courier, registry, ownership."""
