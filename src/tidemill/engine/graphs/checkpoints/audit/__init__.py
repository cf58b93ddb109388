"""Whether what is stored can be relied on: checks over rows, with sentences for operators."""
