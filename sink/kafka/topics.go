package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/sink"
)

// usualMax is Kafka's default of max.message.bytes, for topics with an unknown limit.
const usualMax = 1_000_012

// topicAge is how long a refusal is cached before the next request to Kafka.
const topicAge = time.Second

// topics caches Kafka's information about topics: whether they exist, and how large a batch of
// records may be.
type topics struct {
	cfg *Config
	mu  sync.Mutex
	of  map[string]topicState
}

type topicState struct {
	limit   int   // in bytes; 0 if Kafka does not report it
	refused error // why Kafka accepts no record for it, nil if it does
	asked   time.Time
	stale   bool // Kafka has refused records since it was asked
}

// max returns how large a batch of a topic may be.
func (t *topics) max(name string) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int32(t.limitOf(t.of[name]))
}

// limitOf returns how large a batch of a topic may be.
func (t *topics) limitOf(known topicState) int {
	limit := usualMax
	if known.limit > 0 {
		limit = known.limit
	}
	if t.cfg.MaxMessageBytes > 0 {
		limit = t.cfg.MaxMessageBytes
	}
	return max(512, min(limit, 1<<30))
}

// refused makes the next check of a topic ask Kafka again, if Kafka has refused a batch of records:
// the topic's limit may be lower than it was.
func (t *topics) refused(err error, name string) {
	if refused, is := errors.AsType[*sink.RefusedError](err); !is || !refused.Among {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, asked := t.of[name]; asked {
		known.stale = true
		t.of[name] = known
	}
}

// check reports whether a record of the given size may go to a topic. It asks Kafka if it does not
// know, or if Kafka has refused records. changed says that the topic's limit is another than
// clients know.
func (t *topics) check(ctx context.Context, client *kgo.Client, name string, size int) (changed bool, err error) {
	t.mu.Lock()
	known, asked := t.of[name]
	t.mu.Unlock()
	before := t.limitOf(known)
	bad := known.refused != nil || size > before
	isOld := known.stale || bad && time.Since(known.asked) > topicAge
	if !asked || isOld {
		if known, err = t.ask(ctx, client, name); err != nil {
			return false, err
		}
		t.mu.Lock()
		if known.limit == 0 { // the right to ask for it may be gone
			known.limit = t.of[name].limit
		}
		t.of[name] = known
		t.mu.Unlock()
	}
	limit := t.limitOf(known)
	switch {
	case known.refused != nil:
		return false, &sink.RefusedError{Err: known.refused, Destination: !errors.Is(known.refused, kerr.InvalidTopicException)}
	case size <= limit:
		return asked && limit != before, nil
	case t.cfg.MaxMessageBytes > 0:
		return false, tooLarge(name, size, fmt.Sprintf("kafka.max_message_bytes is %d: raise it, and max.message.bytes of the topic", limit))
	case known.limit > 0:
		return false, tooLarge(name, size, fmt.Sprintf("its max.message.bytes is %d: raise it, or let sinks name a dead_letter", limit))
	}
	return false, tooLarge(name, size, fmt.Sprintf("Kafka does not say what it takes, and the default is %d: allow the user DescribeConfigs, or set kafka.max_message_bytes", limit))
}

// refusal returns why Kafka accepts nothing for a topic, with a remedy.
func refusal(name string, err error) error {
	remedy := "look at the topic and at the rights of the user"
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist: create it, or set kafka.create_topics, and auto.create.topics.enable of the brokers: %w", name, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		remedy = "allow the user the operations Describe and Write for it"
	case errors.Is(err, kerr.InvalidTopicException):
		remedy = "give kafka.topic a name that the brokers allow"
	case errors.Is(err, kerr.PolicyViolation):
		remedy = "make the topic as the brokers' policy wants it"
	case errors.Is(err, kerr.InvalidRecord):
		remedy = "look whether it is compacted, or has a schema that records must follow"
	case errors.Is(err, kerr.InvalidTimestamp):
		remedy = "raise its message.timestamp.before.max.ms and message.timestamp.after.max.ms"
	}
	return fmt.Errorf("topic %s is refused: %s: %w", name, remedy, err)
}

func tooLarge(name string, size int, why string) error {
	return &sink.RefusedError{Err: fmt.Errorf("a change of %d bytes is too large for topic %s: %s", size, name, why), Final: true}
}

// ask asks Kafka for a topic.
func (t *topics) ask(ctx context.Context, client *kgo.Client, name string) (found topicState, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	found.asked = time.Now()
	req, of := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	of.Topic = &name
	req.Topics = append(req.Topics, of)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return found, fmt.Errorf("look at topic %s: %w", name, err)
	}
	for _, answer := range resp.Topics {
		switch err := kerr.ErrorForCode(answer.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition) && t.cfg.Create:
			return found, nil
		case err != nil && !kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownTopicOrPartition):
			found.refused = refusal(name, err)
			return found, nil
		}
	}
	describe, resource := kmsg.NewPtrDescribeConfigsRequest(), kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = name
	resource.ConfigNames = []string{"max.message.bytes"}
	describe.Resources = append(describe.Resources, resource)
	described, err := describe.RequestWith(ctx, client)
	if err != nil {
		return found, fmt.Errorf("look at topic %s: %w", name, err)
	}
	for _, r := range described.Resources { // without the right to read it there is no value
		for _, c := range r.Configs {
			if c.Name == "max.message.bytes" && c.Value != nil {
				found.limit, _ = strconv.Atoi(*c.Value)
			}
		}
	}
	return found, nil
}

// sizeOf returns the approximate size of a record in a batch before compression, in bytes.
func sizeOf(r *kgo.Record) int {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}
