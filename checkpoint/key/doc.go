// Package key says what nodes of one cluster seal with what leaves it and comes back, like cursors: numbered secrets that all nodes share
// through the store of marks, and how they follow each other.
//
// The last key of a [Set] seals, and all of them open. A key is followed by another when it is a day old ([Rotation]), and dropped by the
// one that comes when it is three days old ([Life]): what it sealed last can be opened for two days. Ages are of MongoDB's time, the one
// clock that all nodes see. Of several nodes that rotate at once one succeeds, because a key takes the serial behind the last one.
//
// A [Secret] shows itself to no log and no error. It stands in the store as it is: who can read the marks, which hold documents' keys, can
// read what is sealed with it.
package key
