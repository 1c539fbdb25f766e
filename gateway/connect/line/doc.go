// Package line watches over one connection to a client whom nobody trusts to listen or to speak: a [Writer] whose caller can give up
// waiting for a client that takes nothing, and a [Hearing] that ends when nothing has come for too long.
package line
