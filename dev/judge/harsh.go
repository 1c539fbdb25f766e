package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// lease is how long a node's lease lives.
const lease = 2 * time.Second

// freeze stops a node for a time, and lets it continue.
func (c *cluster) freeze(ctx context.Context, node int, d time.Duration) {
	p := c.node(node).cmd.Process
	_ = p.Signal(syscall.SIGSTOP) // it may have ended
	sleep(ctx, d)
	_ = p.Signal(syscall.SIGCONT)
}

// refuse makes MongoDB refuse a node's next openings of change streams with a code: a fail point of
// the development MongoDB.
func (c *cluster) refuse(ctx context.Context, node, code, times int) {
	command := bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: times}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"aggregate"}}, {Key: "errorCode", Value: code}, {Key: "appName", Value: fmt.Sprintf("streamer judge/n%d", node)},
		}},
	}
	if err := c.client.Database("admin").RunCommand(ctx, command).Err(); err != nil {
		c.tell("fail point: %v", err)
	}
	c.tell("code %d, %d times", code, times)
}

// spoil takes the checkpoints of sinks in a partition away, with or without their histories, or
// damages and repairs them. No node runs. Without a history, and after a repair, older changes come
// again with ids of their own.
func (c *cluster) spoil(ctx context.Context, sinks []*sink, damage bool, partition int) {
	checkpoints := c.client.Database("streamer").Collection("judge.checkpoints")
	for i, s := range sinks {
		row := bson.D{{Key: "_id", Value: fmt.Sprintf("shared/sink/%s/%05d", s.name, partition)}}
		var err error
		switch {
		case damage:
			_, err = checkpoints.UpdateOne(ctx, row, bson.D{{Key: "$set", Value: bson.D{{Key: "checkpoint", Value: "damaged"}}}})
		case (i+partition)%2 == 0:
			_, err = checkpoints.UpdateOne(ctx, row, bson.D{{Key: "$unset", Value: bson.D{{Key: "checkpoint", Value: ""}}}})
		default:
			_, err = checkpoints.DeleteOne(ctx, row)
			s.mu.once.moved()
		}
		if damage && err == nil {
			s.mu.once.moved()
			if !c.operate(ctx, "subscribers", "rewind", "sink/"+s.name, "--to", "-3s", "-f", c.configFile(0)) { // it has no history yet
				_, err = checkpoints.DeleteOne(ctx, row)
			}
		}
		if err != nil {
			c.tell("spoil checkpoint: %v", err)
		}
	}
	c.tell("checkpoints of partition %d are gone (damaged and repaired: %t)", partition, damage)
}
