"""How events, output and texts are stored, the same in every database.

    values         values as JSON bytes
    compression    compresses the bytes of a row
    batches        events and output as rows, and back
    outputs        many small output deltas as one compact text
    large_texts    replaces large texts in a value by references to blobs, and back
    appends        what an append must fulfil: order, no gap, the output limit
    documents      the texts of a run that can be searched, and the words of a query
    step_outputs   finds an output of a step among decoded events
    records        rows as records of the interfaces
    rates          what happened in the last minute
    money          amounts as whole billionths of a dollar, calls that are written later

Nothing here knows a database. What is read is decoded by `msgspec` into known types; it is never
executed.
"""
