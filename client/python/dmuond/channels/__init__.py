"""Data channels: how bucket messages travel. A channel is an object with

    send_threads                   how many threads may call send at once
    send(bucket, data)             blocks until `data` (bytes of a bucket message) may be reused
    receive(buckets, generation)   fills the buffer of every bucket that has a payload, in publish
                                   order; calls bucket.check_published on each
    close()

Each raises dmuond.Error, and none blocks for long once the lease is lost.
"""
