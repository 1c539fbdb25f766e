// Package fleet keeps a client in touch with the nodes that own its partitions.
//
// A [Fleet] begins with a session at any node, which tells the topology. It then keeps a session with each owner and attaches each
// partition at its own, so that every node matches and delivers only what it owns. A partition that moves is attached at its new
// owner first; the old one is left when the first batch has come from the new, and what both bring is dropped by position. While an
// owner cannot be reached, or there is none, any other node serves its partitions. When no session is left, the search begins anew.
//
//	seeking ─► up at some node ─► topology ─► links to the other owners ─► attached
//	   ▲                                                                     │
//	   └──────────────────── the last session has ended ◄────────────────────┘
//
// The fleet decides and keeps count; the client opens sessions and tells what becomes of them. There is at most one session with a node,
// because a node lets a gateway's last session take the place of the one before: links are begun only from a session that is
// up, and the search goes on only when no link is being tried.
package fleet
