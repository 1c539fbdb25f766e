// Package member is a node's place in its cluster: alone, or with others. It brings together who decides what is the node's
// (package cluster and those below it) and the node that serves it, and says to everybody else in the process whether anything may be handed
// out now.
package member
