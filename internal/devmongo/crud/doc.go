// Package crud is the commands on documents and cursors: insert, update, delete, findAndModify, find, count, aggregate,
// change streams, getMore, killCursors.
//
// A statement that was carried out before under the same transaction number is not carried out again: it is answered
// with what it did then. A getMore that waits is woken by the next entry of the log, by killCursors and by the end of
// its connection.
package crud
