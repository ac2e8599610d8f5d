def unavailable(python, progress): return "stub"
def require(python, progress): pass
