"""Models that stand behind the others in the table of models: an import here is a row of it.

Such a mixer has its `NamedModel` in its own file; docs/extending.md has an example.
"""
