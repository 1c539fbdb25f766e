// Package assembly shows people what the nodes of a cluster have in common: who is there, who leads, who should own what, who does, and why.
package assembly
