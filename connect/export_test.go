package connect

import "github.com/redpanda-data/benthos/v4/public/service"

// NewInput makes an input without an engine.
func NewInput(yaml string) (service.BatchInput, error) {
	conf, err := spec().ParseYAML(yaml, nil)
	if err != nil {
		return nil, err
	}
	return newInput(conf, service.MockResources())
}
