// Package connect is the input streamer for Redpanda Connect and other engines that are built on
// its core, github.com/redpanda-data/benthos/v4. Import it for its effect:
//
//	import _ "github.com/mongostream/streamer/connect"
//
// It is a module of its own, so that the service does not depend on the engine.
//
// # Delivery
//
// The input is a subscriber with a name. The messages of a batch are changes in the order in which
// they came. When the engine has acknowledged a batch and all batches before it, the input
// acknowledges their position, and the nodes save it as the subscriber's checkpoint. A batch that
// the engine rejects is delivered again until it is accepted. After a crash the input begins at the
// checkpoint: changes after it come again. With max_in_flight 1, the default, no batch is read
// before the one before it is accepted, so that a document's changes keep their order also when a
// target fails.
//
// # Losses
//
// A loss (client.Resync) is logged, is counted in input_streamer_losses, and does what on_loss
// says: by default the input stops and does not connect until a restart. The loss comes again until
// the input has acknowledged it.
package connect
