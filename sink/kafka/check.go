package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mongostream/streamer/sink"
)

// Check implements sink.Target. For each topic that is known beforehand it reports whether the
// topic exists, or may be created, and whether the user has the rights to it.
func (t *Target) Check(ctx context.Context) (string, error) {
	client, err := kgo.NewClient(t.cfg.options(&sink.Gate{})...)
	if err != nil {
		return "", fmt.Errorf("make Kafka client: %w", err)
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return "", fmt.Errorf("reach Kafka: %w", err)
	}
	var found []string
	var errs []error
	topics := t.expected()
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(append(topics, t.cfg.Losses)))) {
		text, err := t.checkTopic(ctx, client, topic, t.cfg.Transactional && slices.Contains(topics, topic))
		if found = append(found, text); err != nil {
			errs = append(errs, err)
		}
	}
	return strings.Join(found, ", "), errors.Join(errs...)
}

// expected returns the topics of changes that are known beforehand.
func (t *Target) expected() (topics []string) {
	if !t.topic.Has("db") && !t.topic.Has("coll") {
		topics = append(topics, t.topic.Name(&sink.Message{Op: "insert"}))
	}
	for _, ns := range t.cfg.Namespaces {
		topics = append(topics, t.topic.Name(&sink.Message{Op: "insert", DB: ns.DB, Coll: ns.Coll}))
	}
	return topics
}

// checkTopic checks a topic. If positions are committed as its offsets, Kafka requires the right to
// read it as well.
func (t *Target) checkTopic(ctx context.Context, client *kgo.Client, topic string, positions bool) (found string, err error) {
	req, of := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
	of.Topic = &topic
	req.Topics = append(req.Topics, of)
	req.IncludeTopicAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", fmt.Errorf("look at topic %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return "", fmt.Errorf("look at topic %s: the answer has %d topics", topic, len(resp.Topics))
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition) && t.cfg.Create:
		return t.checkCreation(ctx, client, topic)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return "", fmt.Errorf("topic %s does not exist: create it, or set kafka.create_topics", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return "", fmt.Errorf("the user may not see topic %s: it needs the operations Describe and Write", topic)
	case err != nil:
		return "", fmt.Errorf("look at topic %s: %w", topic, err)
	}
	const unknown = math.MinInt32 // brokers before 2.3 do not say
	switch may := resp.Topics[0].AuthorizedOperations; {
	case may == unknown:
	case may&(1<<kmsg.ACLOperationWrite) == 0:
		return "", fmt.Errorf("the user may not write to topic %s: it needs the operation Write", topic)
	case positions && may&(1<<kmsg.ACLOperationRead) == 0:
		return "", fmt.Errorf("the user may not read topic %s: kafka.transactional needs the operation Read, as it commits an offset for the topic", topic)
	}
	return fmt.Sprintf("topic %s exists", topic), nil
}

// checkCreation asks whether a topic may be created, and does not create it.
func (t *Target) checkCreation(ctx context.Context, client *kgo.Client, topic string) (found string, err error) {
	req, of := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	of.Topic, of.NumPartitions, of.ReplicationFactor = topic, -1, -1 // the brokers' defaults
	req.Topics = append(req.Topics, of)
	req.ValidateOnly = true
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", fmt.Errorf("ask whether topic %s may be created: %w", topic, err)
	}
	for _, answer := range resp.Topics {
		switch err := kerr.ErrorForCode(answer.ErrorCode); {
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
			return "", fmt.Errorf("topic %s does not exist, and the user may not create it: it needs the operation Create", topic)
		case err != nil:
			return "", fmt.Errorf("topic %s does not exist and cannot be created: %w", topic, err)
		}
	}
	return fmt.Sprintf("topic %s may be created", topic), nil
}

// Check implements sink.Target. It also begins and aborts a transaction under a separate id, with
// the prefix of the partitions' ids.
func (t *Transactional) Check(ctx context.Context) (string, error) {
	found, err := t.plain.Check(ctx)
	if err != nil {
		return found, err
	}
	name := t.plain.cfg.ID + ".check"
	client, err := kgo.NewClient(append(t.plain.cfg.options(&sink.Gate{}), kgo.TransactionalID(name), kgo.TransactionTimeout(t.plain.cfg.Timeout))...)
	if err != nil {
		return found, fmt.Errorf("make Kafka client: %w", err)
	}
	defer client.Close()
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return found, fmt.Errorf("begin a transaction: the user needs the operations Describe and Write for transactional ids that begin with %s: %w", t.plain.cfg.ID, err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID = name
	add.ProducerID = id
	add.ProducerEpoch = epoch
	add.Group = name
	added, err := add.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		return found, fmt.Errorf("keep the position: the user needs the operation Read for groups that begin with %s: %w", t.plain.cfg.ID, err)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID = name
	end.ProducerID = id
	end.ProducerEpoch = epoch
	ended, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	if err != nil {
		return found, fmt.Errorf("abort a transaction: %w", err)
	}
	return found + ", transactions work", nil
}
