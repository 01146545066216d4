package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"time"
)

type namespace struct {
	Metadata meta `json:"metadata"`
}

type pod struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		NodeName    string `json:"nodeName"`
		HostNetwork bool   `json:"hostNetwork"`
	} `json:"spec"`
	Status struct {
		PodIP string `json:"podIP"`
		Phase string `json:"phase"`
	} `json:"status"`
}

type selector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

type peer struct {
	PodSelector       *selector `json:"podSelector"`
	NamespaceSelector *selector `json:"namespaceSelector"`
	IPBlock           *struct {
		CIDR   string   `json:"cidr"`
		Except []string `json:"except"`
	} `json:"ipBlock"`
}

type rule struct {
	Ports []struct {
		Protocol string `json:"protocol"`
		Port     any    `json:"port"`
	} `json:"ports"`
	From []peer `json:"from"`
	To   []peer `json:"to"`
}

type policy struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		PodSelector selector `json:"podSelector"`
		PolicyTypes []string `json:"policyTypes"`
		Ingress     []rule   `json:"ingress"`
		Egress      []rule   `json:"egress"`
	} `json:"spec"`
}

// policies keeps an nft table in step with the network policies that concern the pods of one node.
//
// Named ports and port ranges are not understood: a rule with one is left out and said so.
func policies(arguments []string) error {
	flags := flag.NewFlagSet("policies", flag.ExitOnError)
	node := flags.String("node", "", "name of this node")
	connect := clusterFlags(flags)
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	c, err := connect()
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	pods := follow[pod](c, "/api/v1/pods", notify)
	namespaces := follow[namespace](c, "/api/v1/namespaces", notify)
	rules := follow[policy](c, "/apis/networking.k8s.io/v1/networkpolicies", notify)
	applied := ""
	for range changed {
		time.Sleep(20 * time.Millisecond)
		allPods, first := pods.all()
		allNamespaces, second := namespaces.all()
		allPolicies, third := rules.all()
		if !first || !second || !third {
			continue
		}
		w := world{pods: allPods, policies: allPolicies, labels: map[string]map[string]string{}}
		for _, n := range allNamespaces {
			w.labels[n.Metadata.Name] = n.Metadata.Labels
		}
		if wanted := w.table(*node); wanted != applied {
			load := exec.Command("nft", "-f", "-")
			load.Stdin = strings.NewReader("add table inet policies\ndelete table inet policies\n" + wanted)
			if output, err := load.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "nft: %v: %s\n", err, output)
				notify()
				time.Sleep(time.Second)
				continue
			}
			applied = wanted
		}
	}
	return nil
}

type world struct {
	pods     []pod
	policies []policy
	labels   map[string]map[string]string
}

// table returns the rules for the pods of *node*: a direction that any policy selects lets through only what one allows.
func (w *world) table(node string) string {
	sort.Slice(w.pods, func(i, j int) bool { return w.pods[i].Status.PodIP < w.pods[j].Status.PodIP })
	var in, out bytes.Buffer
	for _, p := range w.pods {
		if p.Spec.NodeName != node || p.Spec.HostNetwork || p.Status.PodIP == "" || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
			continue
		}
		w.direction(&in, p, "Ingress", "daddr", "saddr")
		w.direction(&out, p, "Egress", "saddr", "daddr")
	}
	start := "ct state established,related accept\n"
	return "table inet policies {\n" +
		"chain egress { type filter hook forward priority -2; policy accept;\n" + start + out.String() + "}\n" +
		"chain ingress { type filter hook forward priority -1; policy accept;\n" + start + in.String() + "}\n}\n"
}

func (w *world) direction(out *bytes.Buffer, p pod, direction, own, other string) {
	isolated := false
	var allowed []string
	for _, policy := range w.policies {
		if policy.Metadata.Namespace != p.Metadata.Namespace || !policy.Spec.PodSelector.matches(p.Metadata.Labels) || !policy.concerns(direction) {
			continue
		}
		isolated = true
		rules := policy.Spec.Ingress
		if direction == "Egress" {
			rules = policy.Spec.Egress
		}
		for _, r := range rules {
			peers := append(append([]peer{}, r.From...), r.To...)
			for _, ports := range portMatches(r) {
				if len(peers) == 0 {
					allowed = append(allowed, ports)
				}
				for _, addresses := range w.addresses(peers, policy.Metadata.Namespace, other) {
					allowed = append(allowed, "ip "+other+" "+addresses+" "+ports)
				}
			}
		}
	}
	if !isolated {
		return
	}
	for _, match := range allowed {
		fmt.Fprintf(out, "ip %s %s %s accept\n", own, p.Status.PodIP, match)
	}
	fmt.Fprintf(out, "ip %s %s drop\n", own, p.Status.PodIP)
}

func portMatches(r rule) []string {
	if len(r.Ports) == 0 {
		return []string{""}
	}
	var matches []string
	for _, port := range r.Ports {
		protocol := strings.ToLower(port.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		switch number := port.Port.(type) {
		case nil:
			matches = append(matches, "meta l4proto "+protocol)
		case float64:
			matches = append(matches, fmt.Sprintf("%s dport %d", protocol, int(number)))
		default:
			fmt.Fprintf(os.Stderr, "port %v is not understood\n", port.Port)
		}
	}
	return matches
}

// addresses returns one nft set of addresses for the pods among *peers*, and one match for each block.
func (w *world) addresses(peers []peer, own, other string) []string {
	var found, blocks []string
	for _, peer := range peers {
		if peer.IPBlock != nil {
			match := peer.IPBlock.CIDR
			if len(peer.IPBlock.Except) > 0 {
				match += " ip " + other + " != { " + strings.Join(peer.IPBlock.Except, ", ") + " }"
			}
			blocks = append(blocks, match)
			continue
		}
		for _, p := range w.pods {
			if p.Status.PodIP == "" || p.Spec.HostNetwork {
				continue
			}
			there := p.Metadata.Namespace == own
			if peer.NamespaceSelector != nil {
				there = peer.NamespaceSelector.matches(w.labels[p.Metadata.Namespace])
			}
			if there && (peer.PodSelector == nil || peer.PodSelector.matches(p.Metadata.Labels)) {
				found = append(found, p.Status.PodIP)
			}
		}
	}
	if len(found) > 0 {
		blocks = append(blocks, "{ "+strings.Join(unique(found), ", ")+" }")
	}
	return blocks
}

func unique(values []string) []string {
	sort.Strings(values)
	kept := values[:0]
	for i, value := range values {
		if i == 0 || value != values[i-1] {
			kept = append(kept, value)
		}
	}
	return kept
}

func (p *policy) concerns(direction string) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return direction == "Ingress" || len(p.Spec.Egress) > 0
	}
	for _, kind := range p.Spec.PolicyTypes {
		if kind == direction {
			return true
		}
	}
	return false
}

func (s *selector) matches(labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if found, there := labels[key]; !there || found != value {
			return false
		}
	}
	for _, expression := range s.MatchExpressions {
		value, there := labels[expression.Key]
		among := false
		for _, wanted := range expression.Values {
			among = among || there && wanted == value
		}
		holds := map[string]bool{"In": among, "NotIn": !among, "Exists": there, "DoesNotExist": !there}[expression.Operator]
		if !holds {
			return false
		}
	}
	return true
}
