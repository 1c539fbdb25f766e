// Command streamer runs a node and looks after it. `streamer help` lists its commands.
package main

//go:generate go test -run TestCommandsAreDocumented -args -rewrite
