// Package fragment puts events together that MongoDB has split because they are too large for one document
// ($changeStreamSplitLargeEvent). It is pure.
package fragment
