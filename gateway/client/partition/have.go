package partition

// A Have is how far one partition has been handled. Its zero value knows nothing: the first batch says where the partition begins.
type Have struct {
	Known bool // something has been handled, or a bookmark was passed
	At    Position
}

// Begin returns where the partition stands for a batch that begins behind from: what that position has not seen is new. It is false if the
// partition does not reach the batch, so that something is missing between them.
func (h *Have) Begin(from Position) (Position, bool) {
	if !h.Known {
		h.At = from
	}
	return h.At, h.At.reaches(from)
}

// Reach moves the partition to a change that has been handled, or to a batch's end. It never moves back.
func (h *Have) Reach(to Position) { h.Known, h.At = true, h.At.join(to) }

// Rewind moves the partition back. Forward it would leave something out.
func (h *Have) Rewind(to Position) {
	h.Known = true
	if h.At.reaches(to) {
		h.At = to
	}
}
