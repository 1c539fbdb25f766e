// Package failpoint is configureFailPoint for the one fail point that tests of clients need: failCommand.
//
// Set keeps its configuration and says for each command what is to happen to it: an error with labels, a closed
// connection, a delay, a write concern error. Modes are off, alwaysOn, times and skip; the data may name the
// commands, the application and the namespace that it applies to. Other fail points and options are refused.
package failpoint
