"""The training under test: plan, Ray Data pipeline, state, asynchronous saver, loop, group and supervisor."""
