package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/mongostream/streamer/change"
	"github.com/mongostream/streamer/cluster"
	"github.com/mongostream/streamer/fault"
)

func encodeJSON(what any) (string, error) {
	value, err := json.Marshal(what)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(value), nil
}

// encodeHeartbeat encodes a heartbeat. It rounds rates to a thousandth, and those above a hundred
// to a whole number, so that the heartbeat of a member with all possible partitions fits into one
// request.
func encodeHeartbeat(h cluster.Heartbeat) (string, error) {
	h.Held = slices.Clone(h.Held)
	for i := range h.Held {
		h.Held[i].Rate = told(h.Held[i].Rate)
	}
	return encodeJSON(h)
}

func told(rate float64) float64 {
	if rate >= 100 {
		return math.Round(rate)
	}
	return math.Round(1000*rate) / 1000
}

// nodeOf returns the node that a key of a heartbeat names, if it is one of ours.
func nodeOf(keys keys, key string) (node string, ok bool) {
	node, err := url.PathUnescape(strings.TrimPrefix(key, keys.members()))
	return node, err == nil && node != "" && keys.member(node) == key
}

// membersOf reads the keys of heartbeats, in their order, which is almost that of the names.
func membersOf(keys keys, kvs []*mvccpb.KeyValue) []cluster.Member {
	var seats []cluster.Member
	for _, kv := range kvs {
		if node, ok := nodeOf(keys, string(kv.Key)); ok {
			seats = append(seats, memberOf(node, kv))
		}
	}
	return seats
}

func memberOf(node string, kv *mvccpb.KeyValue) cluster.Member {
	seat := cluster.Member{Joined: kv.CreateRevision, Beat: kv.ModRevision}
	seat.Garbled = json.Unmarshal(kv.Value, &seat.Heartbeat)
	switch {
	case seat.Garbled != nil:
	case kv.Lease == 0:
		seat.Garbled = errors.New("the key is under no lease: it is no member's")
	case seat.Node != node:
		seat.Garbled = fmt.Errorf("the heartbeat is that of node %q", seat.Node)
	}
	if seat.Garbled != nil {
		seat.Heartbeat = cluster.Heartbeat{Node: node}
	}
	return seat
}

// ownersOf reads owner keys. What names no partition of ours is left out.
func ownersOf(keys keys, stands originState, kvs []*mvccpb.KeyValue) ([]cluster.Owner, error) {
	owners := make([]cluster.Owner, stands.Partitions)
	for _, kv := range kvs {
		p, err := partitionOf(keys.owners(), string(kv.Key))
		if err != nil || int(p) >= len(owners) {
			continue
		}
		h := holderOf(kv)
		if h.Node == "" || h.Process == "" {
			return nil, fault.Newf(fault.ClusterCorrupt, "%s: the value names no owner", kv.Key)
		}
		owners[p] = cluster.Owner{Node: h.Node, Process: h.Process, Epoch: epochOf(stands, kv.ModRevision)}
	}
	return owners, nil
}

// epochOf returns the epoch of a claim that was written at a revision. A key from before the origin
// belongs to an earlier incarnation.
func epochOf(stands originState, revision int64) change.Epoch {
	epoch := change.Epoch{Incarnation: stands.Incarnation, Revision: uint64(revision)}
	if revision < stands.Revision {
		epoch.Incarnation--
	}
	return epoch
}

// A planForm is the stored form of a plan: it has each name once, so that a plan of all possible
// partitions fits into one request.
type planForm struct {
	cluster.Plan

	// Nodes are the names of the owners, Places by partition an index into them. A plan without
	// them has the names by partition.
	Nodes  []string `json:"nodes,omitempty"`
	Places []int    `json:"places,omitempty"`
}

func encodePlan(p cluster.Plan) (string, error) {
	form := planForm{Plan: p}
	form.Owners = nil
	places := make(map[string]int)
	for _, node := range p.Owners {
		place, known := places[node]
		if !known {
			place = len(form.Nodes)
			places[node] = place
			form.Nodes = append(form.Nodes, node)
		}
		form.Places = append(form.Places, place)
	}
	return encodeJSON(form)
}

// plan returns the plan with the names by partition.
func (f planForm) plan() (cluster.Plan, error) {
	for p, place := range f.Places {
		if place < 0 || place >= len(f.Nodes) {
			return cluster.Plan{}, fmt.Errorf("partition %d is given to node %d of %d", p, place, len(f.Nodes))
		}
		if p == 0 {
			f.Owners = make([]string, len(f.Places))
		}
		f.Owners[p] = f.Nodes[place]
	}
	return f.Plan, nil
}

// planOf reads the plan. Its version is the key's, which a hand that writes into it counts up too.
func planOf(kvs []*mvccpb.KeyValue) (plan cluster.Plan, err error) {
	if len(kvs) == 0 {
		return cluster.Plan{}, nil
	}
	var form planForm
	err = json.Unmarshal(kvs[0].Value, &form)
	switch {
	case err == nil && form.Version == 0: // one that gives nothing to anybody, whose partitions all nodes would give up
		err = errors.New("it has no version")
	case err == nil:
		plan, err = form.plan()
	}
	if err != nil {
		return cluster.Plan{}, fault.Newf(fault.ClusterCorrupt, "%s: %w", kvs[0].Key, err)
	}
	plan.Version = uint64(kvs[0].Version)
	return plan, nil
}
