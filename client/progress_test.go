package client

import "testing"

// A node ends a partition in a session while a batch that attaches it is still in the queue, and
// the client has asked for it again: the session has it from the next such batch on, and what comes
// between belongs to nobody.
func TestAttachmentThatTheNodeHasEndedSinceDoesNotCount(t *testing.T) {
	g, s := newProgress("c", 2), &track{}
	g.begin(s, &place{}, false)
	request := func() {
		s.wanted[1] = true
		s.asked[1]++
	}
	s.want([]uint32{1})
	request()
	g.withdraw(s, []uint32{1}, 7)
	s.want([]uint32{1})
	g.attach(s, []uint32{1}, &place{}, 5) // that of the first request
	if g.has(s, 1) {
		t.Error("the session has a partition that its node has ended")
	}
	request()
	g.attach(s, []uint32{1}, &place{}, 9)
	if !g.has(s, 1) {
		t.Error("the session does not have a partition that was attached again")
	}
}

// A batch that attaches a partition for an earlier request counts only if nothing is to be
// requested anew: the partition may have been detached since.
func TestAttachmentCountsForTheLastRequest(t *testing.T) {
	g, s := newProgress("c", 2), &track{}
	g.begin(s, &place{}, false)
	s.want([]uint32{1})
	s.wanted[1] = true
	s.asked[1]++
	g.detach(s, []uint32{1})
	s.want([]uint32{1})
	g.attach(s, []uint32{1}, &place{}, 5)
	if g.has(s, 1) {
		t.Error("the session has a partition that is to be requested again")
	}
	s.wanted[1] = true
	s.asked[1]++
	g.attach(s, []uint32{1}, &place{}, 9)
	if !g.has(s, 1) {
		t.Error("the session does not have what was requested last")
	}
}
