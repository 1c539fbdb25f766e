package config_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	"gopkg.in/yaml.v3"
)

// A manifest has the fields of the sample's objects; a field that is not here is refused, because a
// misspelt one protects nothing.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          labels
	}
	Data yaml.Node
	Spec yaml.Node
}

type labels map[string]string

type statefulSet struct {
	ServiceName         string `yaml:"serviceName"`
	Replicas            int
	PodManagementPolicy string                `yaml:"podManagementPolicy"`
	UpdateStrategy      struct{ Type string } `yaml:"updateStrategy"`
	MinReadySeconds     int                   `yaml:"minReadySeconds"`
	Selector            struct {
		MatchLabels labels `yaml:"matchLabels"`
	}
	Template struct {
		Metadata struct{ Labels, Annotations labels }
		Spec     pod
	}
}

type pod struct {
	Grace           int   `yaml:"terminationGracePeriodSeconds"`
	ServiceAccount  *bool `yaml:"automountServiceAccountToken"`
	ServiceLinks    *bool `yaml:"enableServiceLinks"`
	SecurityContext struct {
		RunAsNonRoot bool                  `yaml:"runAsNonRoot"`
		RunAsUser    int                   `yaml:"runAsUser"`
		RunAsGroup   int                   `yaml:"runAsGroup"`
		FSGroup      int                   `yaml:"fsGroup"`
		Seccomp      struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Affinity   yaml.Node
	Topology   yaml.Node `yaml:"topologySpreadConstraints"`
	Containers []container
	Volumes    []struct {
		Name      string
		ConfigMap struct{ Name string } `yaml:"configMap"`
		Secret    struct {
			Name string `yaml:"secretName"`
			Mode int    `yaml:"defaultMode"`
		}
	}
}

type container struct {
	Name, Image string
	PullPolicy  string `yaml:"imagePullPolicy"`
	Args        []string
	Env         []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name string
		Port int `yaml:"containerPort"`
	}
	Startup         probe `yaml:"startupProbe"`
	Liveness        probe `yaml:"livenessProbe"`
	Readiness       probe `yaml:"readinessProbe"`
	SecurityContext struct {
		Escalation   *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRoot bool  `yaml:"readOnlyRootFilesystem"`
		Capabilities struct{ Drop, Add []string }
	} `yaml:"securityContext"`
	Resources struct{ Requests, Limits map[string]string }
	Mounts    []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet          struct{ Path, Port, Scheme string } `yaml:"httpGet"`
	PeriodSeconds    int                                 `yaml:"periodSeconds"`
	FailureThreshold int                                 `yaml:"failureThreshold"`
}

type networkPolicy struct {
	PodSelector struct {
		MatchLabels labels `yaml:"matchLabels"`
	} `yaml:"podSelector"`
	PolicyTypes     []string `yaml:"policyTypes"`
	Ingress, Egress []struct {
		From, To []struct {
			Namespaces *struct {
				MatchLabels labels `yaml:"matchLabels"`
			} `yaml:"namespaceSelector"`
			Pods *struct {
				MatchLabels labels `yaml:"matchLabels"`
			} `yaml:"podSelector"`
		}
		Ports []struct{ Protocol, Port string }
	}
}

// strict decodes YAML that has no fields but those of the value.
func strict(t *testing.T, node *yaml.Node, into any) {
	t.Helper()
	text, err := yaml.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// selects reports whether pods with the labels are selected.
func selects(selector, of labels) bool {
	for name, value := range selector {
		if of[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// manifests reads the objects of a file by their kind.
func manifests(t *testing.T, path string) map[string]manifest {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder, all := yaml.NewDecoder(bytes.NewReader(text)), map[string]manifest{}
	seen := map[string]bool{}
	decoder.KnownFields(true)
	for {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if m.Kind != "Namespace" && m.Metadata.Namespace != "streamer" || all[m.Kind].Kind != "" && m.Kind != "Service" || seen[m.Kind+" "+m.Metadata.Name] {
			t.Errorf("%s is in the namespace %q, or stands twice", m.Kind, m.Metadata.Namespace)
		}
		all[m.Kind], seen[m.Kind+" "+m.Metadata.Name] = m, true
	}
}

// The sample for Kubernetes is what the standard "restricted" asks for and more: no rights, nothing
// to write on, neighbours kept out, limits. A test of the command looks at its configuration.
func TestSampleForKubernetesIsRestricted(t *testing.T) {
	t.Parallel()
	all := manifests(t, "../../deploy/kubernetes/streamer.yaml")
	if all["Namespace"].Metadata.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("the namespace takes pods that are not restricted")
	}
	var set statefulSet
	var policy networkPolicy
	spec, guard := all["StatefulSet"].Spec, all["NetworkPolicy"].Spec
	strict(t, &spec, &set)
	strict(t, &guard, &policy)
	pod := set.Template.Spec
	if len(pod.Containers) != 1 {
		t.Fatalf("%d containers", len(pod.Containers))
	}
	c := pod.Containers[0]
	off := func(b *bool) bool { return b != nil && !*b }
	for what, holds := range map[string]bool{
		"no service account":        off(pod.ServiceAccount),
		"no variables of services":  off(pod.ServiceLinks),
		"a user without rights":     pod.SecurityContext.RunAsNonRoot && pod.SecurityContext.RunAsUser > 0 && pod.SecurityContext.RunAsGroup > 0,
		"seccomp":                   pod.SecurityContext.Seccomp.Type == "RuntimeDefault",
		"no escalation":             off(c.SecurityContext.Escalation),
		"a root that is read only":  c.SecurityContext.ReadOnlyRoot,
		"no capabilities":           slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) && c.SecurityContext.Capabilities.Add == nil,
		"limits":                    c.Resources.Limits["memory"] != "" && c.Resources.Limits["cpu"] != "" && c.Resources.Limits["ephemeral-storage"] != "",
		"memory that is set aside":  c.Resources.Limits["memory"] == c.Resources.Requests["memory"],
		"a policy both ways":        slices.Equal(policy.PolicyTypes, []string{"Ingress", "Egress"}),
		"a policy for these pods":   selects(policy.PodSelector.MatchLabels, set.Template.Metadata.Labels),
		"probes over TLS":           c.Liveness.HTTPGet.Scheme == "HTTPS" && c.Readiness.HTTPGet.Scheme == "HTTPS" && c.Startup.HTTPGet.Scheme == "HTTPS",
		"the configuration is read": slices.Equal(c.Args, []string{"run", "-f", "/etc/streamer/config/config.yaml"}),
	} {
		if !holds {
			t.Errorf("the sample lacks: %s", what)
		}
	}
	for _, rule := range slices.Concat(policy.Ingress, policy.Egress) {
		peers := slices.Concat(rule.From, rule.To)
		if len(peers) == 0 || len(rule.Ports) == 0 {
			t.Error("a rule of the policy is for everybody, or for every port")
		}
		for _, p := range peers {
			if (p.Namespaces == nil || len(p.Namespaces.MatchLabels) == 0) && (p.Pods == nil || len(p.Pods.MatchLabels) == 0) {
				t.Error("a rule of the policy names nobody")
			}
		}
	}
	for _, m := range c.Mounts {
		if !m.ReadOnly {
			t.Errorf("%s can be written", m.MountPath)
		}
	}
	for _, v := range pod.Volumes {
		if v.Secret.Name != "" && v.Secret.Mode != 0o440 {
			t.Errorf("secret %s has the mode %o", v.Secret.Name, v.Secret.Mode)
		}
	}
}
