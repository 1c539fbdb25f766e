// Package admin is the commands that describe a node or change what is around the documents: hello and its kin, server
// and replica set status, sessions and the ends of transactions, collections and indexes, fail points.
//
// What MongoDB has and devmongo has not is refused by name with CommandNotSupported (115), so that nobody takes it for
// a typing error.
package admin
