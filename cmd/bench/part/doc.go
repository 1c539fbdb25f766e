// Package part runs parts of the benchmark as processes of their own, so that each side's CPU and memory can be told from the
// other's: the program executes itself again, with the name of the part behind a hidden first argument.
//
// Parent and part exchange lines of JSON over the part's standard input and output, one request at a time. A part ends when its
// input does, so that none outlives its parent.
package part
