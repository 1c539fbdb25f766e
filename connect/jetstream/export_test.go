package jetstream

import "github.com/redpanda-data/benthos/v4/public/service"

// New makes an output without an engine.
func New(yaml string) (service.BatchOutput, error) {
	conf, err := spec().ParseYAML(yaml, nil)
	if err != nil {
		return nil, err
	}
	out, _, _, err := newOutput(conf, service.MockResources())
	return out, err
}
