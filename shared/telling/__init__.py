"""What a log says, for people: the words of an event, the causes of a state, and a job in a line or in a report.

The command line and the history service answer with it, in the same words.
Hears: events that were read, and the folds of them.
Says: text and plain data.
Not here: how an answer is asked for, printed or sent.  `muster` prints, `services/history` sends.
"""
