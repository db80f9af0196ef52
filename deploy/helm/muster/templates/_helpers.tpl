{{/* The beginning of all names. */}}
{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains "muster" .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-muster" (.Release.Name | trunc 33) -}}
{{- end -}}
{{- end -}}

{{/* Of all objects: (dict "root" $ "component" "watcher"). */}}
{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* What selects the pods of a component. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The Deployments: their components. */}}
{{- define "muster.components" -}}
{{- if eq .Values.mode "all-in-one" -}}all{{- else -}}watcher scheduler scaler status{{- end -}}
{{- end -}}

{{/* Those, and the history service, the audit service, the archiver and the page. */}}
{{- define "muster.deployments" -}}
{{ include "muster.components" . }}{{ if .Values.history.enabled }} history{{ end }}{{ if .Values.audit.enabled }} audit{{ end }}{{ if .Values.archive.enabled }} archiver{{ end }}{{ if .Values.page.enabled }} page{{ end }}
{{- end -}}


{{/*
The certificate of a component's Service: (dict "root" $ "component" "history" "issuer" issuer).  Adds `authority`, that of
a certificate which the chart makes.
*/}}
{{- define "muster.tlsSecret" -}}
{{- $name := include "muster.name" . }}
{{- $labels := include "muster.labels" . }}
{{- $secret := printf "%s-tls" $name }}
{{- $home := .root.Release.Namespace }}
{{- $names := list (printf "%s.%s.svc" $name $home) }}
---
{{- if .issuer }}
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $secret | quote }}
  namespace: {{ $home | quote }}
  labels:
    {{- $labels | nindent 4 }}
spec:
  secretName: {{ $secret | quote }}
  issuerRef:
    {{- toYaml .issuer | nindent 4 }}
  dnsNames:
    {{- toYaml $names | nindent 4 }}
  usages: [digital signature, key encipherment, server auth]
{{- else }}
{{- /* One certificate for ten years; upgrades keep it. */}}
{{- $tls := (lookup "v1" "Secret" $home $secret).data }}
{{- if not $tls }}
{{- $authority := genCAWithKey (printf "%s-ca" $name) 3650 (genPrivateKey "ecdsa") }}
{{- $made := genSignedCertWithKey $name nil $names 3650 $authority (genPrivateKey "ecdsa") }}
{{- $tls = dict "ca.crt" ($authority.Cert | b64enc) "tls.crt" ($made.Cert | b64enc) "tls.key" ($made.Key | b64enc) }}
{{- end }}
{{- $_ := set . "authority" (get $tls "ca.crt") }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $secret | quote }}
  namespace: {{ $home | quote }}
  labels:
    {{- $labels | nindent 4 }}
type: kubernetes.io/tls
data:
  ca.crt: {{ get $tls "ca.crt" }}
  tls.crt: {{ get $tls "tls.crt" }}
  tls.key: {{ get $tls "tls.key" }}
{{- end }}
{{- end -}}

{{/* Not empty if the API server serves admission policies; without one, where only versions are known, by its version. */}}
{{- define "muster.servesPolicies" -}}
{{- if .Capabilities.APIVersions.Has "v1/Pod" | ternary (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end -}}

{{/* Whether there are admission policies: they belong to the cluster, as do the roles of a release with rights there. */}}
{{- define "muster.admissionPolicies" -}}
{{- $wanted := .Values.admissionPolicies.enabled -}}
{{- $ofCluster := or (not .Values.scope.namespace) (and .Values.setup.enabled .Values.setup.crds) -}}
{{- if ne (toString $wanted) "auto" -}}{{ $wanted }}
{{- else if and (include "muster.servesPolicies" .) .Values.rbac.create $ofCluster -}}true{{- end -}}
{{- end -}}

{{/* The name of a component's objects. */}}
{{- define "muster.name" -}}
{{- if eq .component "all" -}}{{ include "muster.fullname" .root }}
{{- else -}}{{ include "muster.fullname" .root }}-{{ .component }}{{- end -}}
{{- end -}}

{{- define "muster.image" -}}
{{- $service := get .root.Values.services .component | default dict -}}
{{- .root.Values.image.repository }}:{{ $service.tag | default .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- end -}}

{{- define "muster.replicas" -}}
{{- $service := get .root.Values.services .component | default dict -}}
{{- $service.replicas | default .root.Values.replicas -}}
{{- end -}}

{{/* Where the log is. */}}
{{- define "muster.natsUrl" -}}
{{- if .Values.nats.enabled -}}
{{- $name := printf "%s-nats" (include "muster.fullname" .) -}}
{{- $servers := list -}}
{{- range until (int .Values.nats.replicas) -}}
{{- $scheme := ternary "tls" "nats" $.Values.nats.tls.enabled -}}
{{- $servers = append $servers (printf "%s://%s-%d.%s.%s.svc:4222" $scheme $name . $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $servers -}}
{{- else -}}
{{- .Values.nats.url -}}
{{- end -}}
{{- end -}}

{{/* Where its servers are monitored: each is asked whether it syncs its disk. */}}
{{- define "muster.natsMonitor" -}}
{{- if .Values.nats.enabled -}}
{{- $name := printf "%s-nats" (include "muster.fullname" .) -}}
{{- $servers := list -}}
{{- range until (int .Values.nats.replicas) -}}
{{- $servers = append $servers (printf "http://%s-%d.%s.%s.svc:8222" $name . $name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $servers -}}
{{- else -}}
{{- .Values.nats.monitor -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the password of a user at the log, under the user's name: (dict "root" $ "user" "watcher"). */}}
{{- define "muster.natsSecret" -}}
{{- .root.Values.nats.auth.existingSecret | default (printf "%s-nats-%s" (include "muster.fullname" .root) .user) -}}
{{- end -}}

{{/* The Secret with the authority of the servers' certificate; empty: the system's authorities, or no TLS at all. */}}
{{- define "muster.natsTlsSecret" -}}
{{- if .Values.nats.tls.enabled -}}
{{- .Values.nats.tls.secret | default (ternary (printf "%s-nats-tls" (include "muster.fullname" .)) "" .Values.nats.enabled) -}}
{{- end -}}
{{- end -}}

{{/* Environment, mounts and volumes of a client of the log: (dict "root" $ "users" (list "watcher")). */}}
{{- define "muster.natsEnv" -}}
- name: NATS_URL
  value: {{ include "muster.natsUrl" .root | quote }}
{{- with include "muster.natsMonitor" .root }}
- name: NATS_MONITOR
  value: {{ . | quote }}
{{- end }}
{{- if gt (len .users) 1 }}
- name: NATS_PASSWORDS
  value: /etc/muster/nats
{{- else }}
- name: NATS_USER
  value: {{ first .users }}
- name: NATS_PASSWORD_FILE
  value: /etc/muster/nats/{{ first .users }}
{{- end }}
{{- if include "muster.natsTlsSecret" .root }}
- name: NATS_CA
  value: /etc/muster/nats-ca/ca.crt
{{- end }}
{{- end -}}

{{- define "muster.natsMounts" -}}
- name: nats-users
  mountPath: /etc/muster/nats
  readOnly: true
{{- if include "muster.natsTlsSecret" .root }}
- name: nats-ca
  mountPath: /etc/muster/nats-ca
  readOnly: true
{{- end }}
{{- end -}}

{{- define "muster.natsVolumes" -}}
- name: nats-users
  projected:
    defaultMode: 0440
    sources:
      {{- range .users }}
      - secret:
          name: {{ include "muster.natsSecret" (dict "root" $.root "user" .) | quote }}
          # While it is missing the process says so on one line and is not ready; it goes on once the Secret is there.
          optional: true
          items:
            - key: {{ . }}
              path: {{ . }}
      {{- end }}
{{- with include "muster.natsTlsSecret" .root }}
- name: nats-ca
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end -}}

{{/* The `restricted` profile. */}}
{{- define "muster.podSecurity" -}}
runAsNonRoot: true
{{- range $key, $value := .Values.podSecurityContext }}
{{- if not (kindIs "invalid" $value) }}
{{ $key }}: {{ $value | int64 }}
{{- end }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Where pods may run, the same for all but for what `own` says: (dict "root" $ "own" .Values.nats). */}}
{{- define "muster.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with get $.own $key | default (get $.root.Values $key) }}
{{ dict $key . | toYaml }}
{{- end }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Of what is in no namespace: installations for single namespaces may have the same release name.
(dict "root" $ "name" "muster-setup") */}}
{{- define "muster.clusterName" -}}
{{- .name }}{{ with .root.Values.scope.namespace }}-{{ . }}{{ end -}}
{{- end -}}

{{/* The labels of the namespaces where jobs may begin; an installation for one namespace was given it by name. */}}
{{- define "muster.namespaceSelector" -}}
{{- if not .Values.scope.namespace }}{{ .Values.scope.namespaceSelector }}{{ end -}}
{{- end -}}

{{/* Settings of the services besides the log. */}}
{{- define "muster.settings" -}}
- name: MUSTER_NAMESPACE
  value: {{ .Values.scope.namespace | quote }}
- name: MUSTER_NAMESPACE_SELECTOR
  value: {{ include "muster.namespaceSelector" . | quote }}
- name: MUSTER_KINDS
  value: {{ join "," .Values.kinds | quote }}
- name: MUSTER_TAKE_OVER
  value: {{ .Values.takeOver | quote }}
- name: MUSTER_KUEUE
  value: {{ .Values.kueue | quote }}
- name: MUSTER_GANGS
  value: {{ .Values.gangs | quote }}
- name: MUSTER_CLUSTER_DOMAIN
  value: {{ .Values.clusterDomain | quote }}
- name: MUSTER_EXEC
  value: {{ .Values.exec | quote }}
- name: MUSTER_SSH
  value: {{ .Values.ssh | quote }}
- name: MUSTER_DRAIN
  value: {{ .Values.drain | int | quote }}
- name: MUSTER_RELEASED_GRACE
  value: {{ .Values.releasedGrace | int | quote }}
- name: MUSTER_DISRUPTION_TAINTS
  value: {{ join "," .Values.disruptionTaints | quote }}
- name: MUSTER_DISRUPTION_NOTICE
  value: {{ .Values.disruptionNotice | int | quote }}
- name: MUSTER_FORCE_DELETE_AFTER
  value: {{ if ne .Values.forceDeleteAfter nil }}{{ .Values.forceDeleteAfter | int | quote }}{{ else }}""{{ end }}
- name: MUSTER_TERMINATION_MESSAGES
  value: {{ .Values.terminationMessages | quote }}
- name: MUSTER_LOG_MIB_PER_MINUTE
  value: {{ .Values.budgets.logMiBPerMinute | int | quote }}
- name: MUSTER_NAMESPACE_MIB
  value: {{ .Values.budgets.memoryMiB | int | quote }}
- name: MUSTER_MEMORY_MIB
  value: {{ .Values.budgets.totalMemoryMiB | int | quote }}
- name: MUSTER_NAMESPACE_SHARE
  value: {{ .Values.budgets.logShare | quote }}
- name: MUSTER_LOG_RESERVE
  value: {{ .Values.logReserve | quote }}
- name: MUSTER_TELL_NAMES
  value: {{ .Values.metrics.names | quote }}
{{- /* Every address: a pod has one of IPv4, one of IPv6 or both, and is probed at any of them. */}}
- name: MUSTER_HEALTH_HOST
  value: ""
- name: MUSTER_HEALTH_PORT
  value: "8080"
- name: MUSTER_LOG_FORMAT
  value: {{ .Values.log.format }}
- name: MUSTER_LOG_LEVEL
  value: {{ .Values.log.level }}
{{- end -}}

{{- define "muster.env" -}}
{{ include "muster.settings" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
