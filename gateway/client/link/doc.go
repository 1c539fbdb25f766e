// Package link is the wire between the client and a node: how a [Stream] is opened, and what waits to be sent over one.
//
// An [Outbox] never blocks those who put something in, and is bounded by what there is: for each partition one position and where it is to
// go on, one change for each subscription. The later ack, or the later word about a subscription, takes the place of the earlier.
package link
