package failpoint

import (
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/internal/devmongo/doc"
	"github.com/mongostream/streamer/internal/devmongo/fault"
)

// Set is the fail points of a server. The zero value is ready; it is safe for concurrent use.
type Set struct {
	mu      sync.Mutex
	point   point
	entered int64
}

// Call is a command about to run.
type Call struct{ Command, App, Namespace string }

// Effect is what is to happen to it.
type Effect struct {
	// Code is the error to answer, 0 for none. Labels replace the server's own when not nil.
	Code              fault.Code
	Labels            []string
	Close             bool
	Block             time.Duration
	WriteConcernError bsoncore.Document
}

// point is the configuration of failCommand.
type point struct {
	on       bool
	times    int64 // activations left; negative is no limit
	skip     int64
	commands []string
	app, ns  string
	effect   Effect
}

// Configure carries out a configureFailPoint command and returns how often the fail point was entered before.
func (s *Set) Configure(cmd bsoncore.Document) (int64, error) {
	_, name, _ := doc.First(cmd)
	if text, _ := name.StringValueOK(); text != "failCommand" {
		return 0, fault.New(fault.FailPointSetFailed, "%s not found", text)
	}
	p, err := parseMode(cmd)
	if err != nil {
		return 0, err
	}
	if data, ok := doc.Field(cmd, "data"); ok && p.on {
		if err := p.parseData(data.Data); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.point = p
	return s.entered, nil
}

func parseMode(cmd bsoncore.Document) (point, error) {
	mode, _ := doc.Field(cmd, "mode")
	if text, ok := mode.StringValueOK(); ok {
		switch text {
		case "off":
			return point{}, nil
		case "alwaysOn":
			return point{on: true, times: -1}, nil
		default:
			return point{}, fault.New(fault.BadValue, "unknown mode: %s", text)
		}
	}
	if mode.Type != bsoncore.TypeEmbeddedDocument {
		return point{}, fault.New(fault.TypeMismatch, "'mode' must be a string or JSON object")
	}
	name, v, _ := doc.First(mode.Data)
	n, ok := doc.Int(v)
	switch {
	case name == "times" && ok && n >= 0:
		return point{on: n > 0, times: n}, nil
	case name == "skip" && ok && n >= 0:
		return point{on: true, times: -1, skip: n}, nil
	case name == "activationProbability":
		return point{}, fault.New(fault.CommandNotSupported, "devmongo does not support the mode activationProbability")
	default:
		return point{}, fault.New(fault.BadValue, "'mode' has unsupported value: %s", doc.Text(mode.Data))
	}
}

func (p *point) parseData(d []byte) error {
	for name, v := range doc.All(d) {
		n, _ := doc.Int(v)
		text, _ := v.StringValueOK()
		switch name {
		case "failCommands":
			p.commands = texts(v)
		case "errorCode":
			p.effect.Code = fault.Code(n)
		case "errorLabels":
			p.effect.Labels = append([]string{}, texts(v)...)
		case "closeConnection":
			p.effect.Close = doc.Truth(v)
		case "blockConnection":
			if !doc.Truth(v) {
				p.effect.Block = 0
			}
		case "blockTimeMS":
			p.effect.Block = time.Duration(n) * time.Millisecond
		case "writeConcernError":
			p.effect.WriteConcernError = doc.Clone(v.Data)
		case "appName":
			p.app = text
		case "namespace":
			p.ns = text
		case "failInternalCommands":
			// No command here is internal.
		default:
			return fault.New(fault.CommandNotSupported, "devmongo does not support the failCommand option '%s'", name)
		}
	}
	return nil
}

func texts(v bsoncore.Value) []string {
	var out []string
	for item := range doc.Values(v.Data) {
		if text, ok := item.StringValueOK(); ok {
			out = append(out, text)
		}
	}
	return out
}

// Enter says what is to happen to a command.
func (s *Set) Enter(c Call) Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.point
	if !p.on || !slices.Contains(p.commands, c.Command) || p.app != "" && p.app != c.App || p.ns != "" && p.ns != c.Namespace {
		return Effect{}
	}
	if p.skip > 0 {
		p.skip--
		return Effect{}
	}
	s.entered++
	if p.times > 0 {
		p.times--
		p.on = p.times > 0
	}
	return p.effect
}
