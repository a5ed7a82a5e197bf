"""Which candidates are shown to be good enough: tests by betting on few labels and many guesses."""
