// Package standing reads where clients say that they stand: by places, which say what they have seen, by cursors, which say where exactly to read
// on in the log, or by both.
package standing
