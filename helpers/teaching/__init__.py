"""For a teacher: the notebooks made into editions for students and for whoever teaches them.

In: the committed notebooks, with the marks of their exercises. Out: a folder that Jupyter opens and nbgrader takes for an
assignment. Used by no notebook, but by the command `teach`.
"""
