// Package generate makes changes faster than a client could: it writes documents to the store and their events to the
// log from templates, in which only the bytes change that differ from event to event.
//
// A template is made by the log's own encoder, so that generated events are byte for byte those of real writes. Whoever
// changes a generated document meanwhile changes what is replaced next; removing one ends the generation with an error.
// Locks of transactions are not looked at: generated documents are the generator's.
package generate
