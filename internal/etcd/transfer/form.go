package transfer

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/fault"
	"github.com/mongostream/streamer/handoff/ledger"
)

// version is that of the form; whoever changes the meaning of a field raises it.
const version = 1

// A storedRecord is a ledger.Record as it is stored.
type storedRecord struct {
	Version int          `json:"v"`
	From    ledger.Party `json:"from"`
	To      ledger.Party `json:"to"`
	Epoch   struct {
		Incarnation uint64 `json:"incarnation"`
		Revision    uint64 `json:"revision"`
	} `json:"epoch"`
	Cause   string       `json:"cause,omitempty"`
	By      string       `json:"by,omitempty"`
	Started time.Time    `json:"started"`
	Phase   ledger.Phase `json:"phase"`
}

// A storedAnswer is a ledger.Answer as it is stored.
type storedAnswer struct {
	Version int    `json:"v"`
	To      int64  `json:"to"`
	Refusal string `json:"refusal,omitempty"`
}

func encodeRecord(r ledger.Record) (string, error) {
	s := storedRecord{Version: version, From: r.From, To: r.To, Cause: r.Cause, By: r.By, Started: r.Started.UTC(), Phase: r.Phase}
	s.Epoch.Incarnation, s.Epoch.Revision = r.Epoch.Incarnation, r.Epoch.Revision
	value, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode handoff: %w", err)
	}
	return string(value), nil
}

func decodeRecord(p change.Partition, kv *mvccpb.KeyValue) (ledger.Record, error) {
	var s storedRecord
	if err := decode(kv, &s); err != nil {
		return ledger.Record{}, err
	}
	switch {
	case s.Version != version:
		return ledger.Record{}, fault.Newf(fault.ClusterCorrupt, "%s: its form is version %d, this node knows %d", kv.Key, s.Version, version)
	case s.Phase != ledger.Prepared && s.Phase != ledger.Switched, s.From == s.To:
		return ledger.Record{}, fault.Newf(fault.ClusterCorrupt, "%s: phase %q, from %q to %q", kv.Key, s.Phase, s.From.Node, s.To.Node)
	}
	return ledger.Record{
		Partition: p, From: s.From, To: s.To, Epoch: change.Epoch{Incarnation: s.Epoch.Incarnation, Revision: s.Epoch.Revision},
		Cause: s.Cause, By: s.By, Started: s.Started, Phase: s.Phase, Revision: kv.ModRevision,
	}, nil
}

func encodeAnswer(to int64, refusal string) (string, error) {
	value, err := json.Marshal(storedAnswer{Version: version, To: to, Refusal: refusal})
	if err != nil {
		return "", fmt.Errorf("encode answer: %w", err)
	}
	return string(value), nil
}

func decodeAnswer(kv *mvccpb.KeyValue) (ledger.Answer, error) {
	var s storedAnswer
	if err := decode(kv, &s); err != nil {
		return ledger.Answer{}, err
	}
	if s.Version != version {
		return ledger.Answer{}, fault.Newf(fault.ClusterCorrupt, "%s: its form is version %d, this node knows %d", kv.Key, s.Version, version)
	}
	return ledger.Answer{To: s.To, Refusal: s.Refusal, Revision: kv.ModRevision}, nil
}

func decode(kv *mvccpb.KeyValue, into any) error {
	if err := json.Unmarshal(kv.Value, into); err != nil {
		return fault.New(fault.ClusterCorrupt, fmt.Errorf("%s: %w", kv.Key, err))
	}
	return nil
}
