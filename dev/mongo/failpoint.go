package devmongo

import (
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mongostream/streamer/dev/mongo/doc"
	"github.com/mongostream/streamer/dev/mongo/wire"
)

// failPoint is the fail points of a server. The zero value is ready; it is safe for concurrent use.
type failPoint struct {
	mu      sync.Mutex
	point   failPointConfig
	entered int64
}

// failPointCall is a command about to run.
type failPointCall struct{ command, app, namespace string }

// failPointEffect is the effect of the fail point on it.
type failPointEffect struct {
	// code is the error to answer, 0 for none. Labels replace the server's own when not nil.
	code              wire.Code
	labels            []string
	close             bool
	block             time.Duration
	writeConcernError bsoncore.Document
}

// failPointConfig is the configuration of failCommand.
type failPointConfig struct {
	on       bool
	times    int64 // activations left; negative is no limit
	skip     int64
	commands []string
	app, ns  string
	effect   failPointEffect
}

// concerns reports whether the fail point is one of the command, its application and its namespace.
func (p *failPointConfig) concerns(c failPointCall) bool {
	isApp := p.app == "" || p.app == c.app
	isNamespace := p.ns == "" || p.ns == c.namespace
	return isApp && isNamespace && slices.Contains(p.commands, c.command)
}

// configure carries out a configureFailPoint command and returns how often the fail point was
// entered before.
func (s *failPoint) configure(cmd bsoncore.Document) (int64, error) {
	_, name, _ := doc.First(cmd)
	if text, _ := name.StringValueOK(); text != "failCommand" {
		return 0, wire.Errorf(wire.FailPointSetFailed, "%s not found", text)
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

func parseMode(cmd bsoncore.Document) (failPointConfig, error) {
	mode, _ := doc.Field(cmd, "mode")
	if text, ok := mode.StringValueOK(); ok {
		switch text {
		case "off":
			return failPointConfig{}, nil
		case "alwaysOn":
			return failPointConfig{on: true, times: -1}, nil
		default:
			return failPointConfig{}, wire.Errorf(wire.BadValue, "unknown mode: %s", text)
		}
	}
	if mode.Type != bsoncore.TypeEmbeddedDocument {
		return failPointConfig{}, wire.Errorf(wire.TypeMismatch, "'mode' must be a string or JSON object")
	}
	name, v, _ := doc.First(mode.Data)
	n, ok := doc.Int(v)
	switch {
	case name == "times" && ok && n >= 0:
		return failPointConfig{on: n > 0, times: n}, nil
	case name == "skip" && ok && n >= 0:
		return failPointConfig{on: true, times: -1, skip: n}, nil
	case name == "activationProbability":
		return failPointConfig{}, wire.Errorf(wire.CommandNotSupported, "devmongo does not support the mode activationProbability")
	default:
		return failPointConfig{}, wire.Errorf(wire.BadValue, "'mode' has unsupported value: %s", doc.Text(mode.Data))
	}
}

func (p *failPointConfig) parseData(d []byte) error {
	for name, v := range doc.All(d) {
		n, _ := doc.Int(v)
		text, _ := v.StringValueOK()
		switch name {
		case "failCommands":
			p.commands = texts(v)
		case "errorCode":
			p.effect.code = wire.Code(n)
		case "errorLabels":
			p.effect.labels = append([]string{}, texts(v)...)
		case "closeConnection":
			p.effect.close = doc.Truth(v)
		case "blockConnection":
			if !doc.Truth(v) {
				p.effect.block = 0
			}
		case "blockTimeMS":
			p.effect.block = time.Duration(n) * time.Millisecond
		case "writeConcernError":
			p.effect.writeConcernError = doc.Clone(v.Data)
		case "appName":
			p.app = text
		case "namespace":
			p.ns = text
		case "failInternalCommands":
			// No command here is internal.
		default:
			return wire.Errorf(wire.CommandNotSupported, "devmongo does not support the failCommand option '%s'", name)
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

// enter returns the effect on a command.
func (s *failPoint) enter(c failPointCall) failPointEffect {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.point
	if !p.on || !p.concerns(c) {
		return failPointEffect{}
	}
	if p.skip > 0 {
		p.skip--
		return failPointEffect{}
	}
	s.entered++
	if p.times > 0 {
		p.times--
		p.on = p.times > 0
	}
	return p.effect
}
