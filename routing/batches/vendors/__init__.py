"""Lines that vendors' own batches answer: `orders` is their journal, `input` what is sent, `lines`
writes and reads each as a request is, `order` sees to one order from its lines to their results,
and `run` to all of one batch.
"""
