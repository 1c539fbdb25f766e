// Package place connects to where the marks of a cluster are kept and to the MongoDB that they are about, as the configuration says: for
// nodes, and for operators who look after them.
package place
