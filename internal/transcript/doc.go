// Package transcript writes down what happens when, in tests of things that take their time: in a bubble of testing/synctest, one line for
// each moment and event. What stands in testdata is what is to happen; the flag -rewrite writes that anew.
package transcript
