"""Steps of the pipeline: plain functions, files in, files out.

A step reads its inputs and writes its outputs through a `StepIO`, calls `pass_core` for the mathematics and returns
counts and metrics. It parses no arguments, reads no params.yaml, spells no path, sets no seed and knows neither Prefect
nor DVC nor MLflow: `tasks.running.step.run_step` does that around it, the same way for `python -m tasks`, DVC and Prefect.
"""
