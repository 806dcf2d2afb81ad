"""The order of what logs say: clocks, launches, what later steps excuse."""
