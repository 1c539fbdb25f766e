// Command streamer runs a node and looks after it. `streamer help` lists what it does.
package main

//go:generate go test -run TestCommandsAreDocumented -args -rewrite
